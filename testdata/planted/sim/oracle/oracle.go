// Package oracle judges the core by functions of the core.
package oracle

import _ "seedlet.dev/core/walls"
