"""Word problems for a calculator: what `make demo` trains on."""
