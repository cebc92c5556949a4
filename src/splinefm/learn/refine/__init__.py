"""Fields that a fit refines: resolutions by column, and crosses."""
