package identity

import "time"

// Expiry is when the client certificate expires that is rotated; the zero time if none is, or if
// there is none yet.
func (i *Identity) Expiry() time.Time {
	if i.managed == nil {
		return time.Time{}
	}
	if current := i.managed.current.Load(); current != nil {
		return current.Leaf.NotAfter
	}
	return time.Time{}
}
