"""SQL of the pair: numbers of changes, copies of rows, digests."""
