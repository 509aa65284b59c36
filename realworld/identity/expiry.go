package identity

import "time"

// NotAfter returns when the client certificate expires, or has expired; the zero time if there is
// none. Without a successor it is that of the kubeconfig.
func (i *Identity) NotAfter() time.Time {
	if at := i.Expiry(); !at.IsZero() {
		return at
	}
	if i.files != nil {
		return i.files.pair.Current().Leaf.NotAfter
	}
	return i.kubeconfigNotAfter
}

// NotAfter returns when the serving certificate expires, or has expired; the zero time if there is
// none, and of one that the node signs itself: the next handshake replaces it.
func (s *Serving) NotAfter() time.Time {
	switch source := s.source.(type) {
	case fileCertificate:
		return source.pair.Current().Leaf.NotAfter
	case *requestedCertificate:
		if current := source.current.Load(); current != nil {
			return current.Leaf.NotAfter
		}
	}
	return time.Time{}
}

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
