"""A reproduction as a whole: run or reuse figures, keep the ledger, and write one page that shows everything."""
