"""Other decoders of pgoutput, as far as they can be had."""
