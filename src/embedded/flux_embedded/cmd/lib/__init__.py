"""What several commands share: option parsing, connecting, output formats, jobspecs."""
