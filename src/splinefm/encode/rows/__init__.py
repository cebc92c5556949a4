"""One row at a time: fields as compiled code reads them."""
