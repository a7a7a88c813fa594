"""How predictors are fitted and evaluated: data readers, recipes, scores."""
