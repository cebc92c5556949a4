"""The page of `splinefm explain`: what a model does on a table, in one HTML file."""
