// Command seedsim imports what seedsim may not.
package main

import (
	_ "seedlet.dev/realworld"
	_ "seedlet.dev/sim"
)

func main() {}
