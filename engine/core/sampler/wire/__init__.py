"""One SGLang server as bytes: requests out, streams of checked chunks in, control calls."""
