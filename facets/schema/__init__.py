"""What a collection declares: names, columns, state fields, path patterns and sets of questions."""
