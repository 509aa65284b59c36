module seedlet.dev

go 1.26
