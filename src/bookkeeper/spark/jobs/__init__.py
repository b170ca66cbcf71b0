"""Jobs over many ledgers, each a function of an `options.ReadOptions`; `bookkeeper.spark` has their short forms."""
