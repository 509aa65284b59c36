// Package realworld imports what realworld may not.
package realworld

import (
	_ "seedlet.dev/core"
	_ "seedlet.dev/world"
)
