"""What no analysis can beat: concrete pairs of data sets, for one mechanism or for all."""
