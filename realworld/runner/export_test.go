package runner

import "time"

// SetOffset replaces what tells the offset of the date.
func (r *Runner) SetOffset(offset func() time.Duration) { r.offset = offset }
