"""One module per experiment's figure. Each draws what it is given; nothing in a figure is told by colour alone."""
