"""`oelm board`: a local page that shows run directories while they grow. It reads, and starts nothing; no torch."""
