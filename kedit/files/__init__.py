"""Files that users bring: their rows whatever the format, the images that rows name, and documents."""
