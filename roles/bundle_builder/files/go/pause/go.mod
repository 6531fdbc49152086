module attested.invalid/pause

go 1.26.0
