"""The manual is true: names, programs, commands, links and files on its pages."""
