"""`optimum-cli cpp ...`: each command parses its arguments and calls one function of a floor below."""
