// Package world imports what world may not.
package world

import _ "seedlet.dev/core"
