"""What a fit chooses by itself: penalties, capacity, resolutions and crosses."""
