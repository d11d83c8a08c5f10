"""Parts that hold inserted items with their vectors; the home of the index behind memory editors."""
