"""What runs measured, for the pages: their curves, and what there is to say of each as a whole."""
