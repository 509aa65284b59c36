package identity

import "time"

// Expiry returns when the rotated client certificate expires; the zero time if the certificate is
// not rotated or does not exist yet.
func (i *Identity) Expiry() time.Time {
	if i.managed == nil {
		return time.Time{}
	}
	if current := i.managed.current.Load(); current != nil {
		return current.Leaf.NotAfter
	}
	return time.Time{}
}
