"""What a fit refines: resolutions by column, crosses, and the bias."""
