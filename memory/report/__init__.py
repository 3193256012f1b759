"""How a memory grew: figures by training step, and a page of them."""
