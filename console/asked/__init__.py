"""What was asked for, before any process is: the recipe under its options, its needs, its ports."""
