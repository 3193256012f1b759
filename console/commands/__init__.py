"""One module for each word that follows `toolwright`."""
