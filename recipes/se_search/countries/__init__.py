"""Questions about countries, for a pretrained model."""
