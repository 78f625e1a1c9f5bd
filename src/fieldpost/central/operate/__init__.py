"""Actions of people, one module per noun: check the role, compare-and-set, audit."""
