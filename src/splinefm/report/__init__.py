"""The page of `splinefm explain`."""
