"""What answers are worth against labels: measures, fitting and fitted temperatures."""
