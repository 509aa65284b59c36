package walls_test

import (
	_ "os" // a test may

	_ "seedlet.dev/sim" // but not this
)
