// Package certfile keeps what certificate files hold, and reads them anew when they have changed.
//
// The contract: nothing runs meanwhile; whoever asks is the one who looks. So a file that was
// replaced is known at the next handshake or request, and a node where nobody asks does nothing.
// Files that are torn, empty or gone leave what was read last: whoever replaces two files one
// after the other is not finished in between. Start reading at Open.
package certfile

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"

	"k8s.io/client-go/util/cert"
)

// Kept is what some files hold. Many goroutines may ask at once.
type Kept[T any] struct {
	paths []string
	parse func(contents [][]byte) (T, error)
	warn  func(problem string)

	mu     sync.Mutex
	seen   []os.FileInfo // when they were read last; nil if that has failed
	warned string
	value  T
}

// Open reads files. What later keeps them from being read anew, warn is told, once.
func Open[T any](parse func(contents [][]byte) (T, error), warn func(problem string),
	paths ...string) (*Kept[T], error) {
	k := &Kept[T]{paths: paths, parse: parse, warn: warn}
	value, seen, err := k.read()
	if err != nil {
		return nil, err
	}
	k.value, k.seen = value, seen
	return k, nil
}

// Now is what the files hold now, or what they held when they could be read last.
func (k *Kept[T]) Now() T {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.changed() {
		return k.value
	}
	value, seen, err := k.read()
	if err != nil {
		k.seen = nil
		if problem := err.Error(); problem != k.warned {
			k.warned = problem
			k.warn(problem + "; what was read before stays in use")
		}
		return k.value
	}
	k.value, k.seen, k.warned = value, seen, ""
	return k.value
}

func (k *Kept[T]) changed() bool {
	if k.seen == nil {
		return true
	}
	for i, path := range k.paths {
		is, err := os.Stat(path)
		was := k.seen[i]
		if err != nil || !os.SameFile(is, was) || is.Size() != was.Size() ||
			!is.ModTime().Equal(was.ModTime()) {
			return true
		}
	}
	return false
}

// read looks at a file before it reads it: what changes in between is seen at the next look.
func (k *Kept[T]) read() (value T, seen []os.FileInfo, err error) {
	var contents [][]byte
	for _, path := range k.paths {
		info, err := os.Stat(path)
		if err != nil {
			return value, nil, err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return value, nil, err
		}
		seen, contents = append(seen, info), append(contents, content)
	}
	if value, err = k.parse(contents); err != nil {
		return value, nil, fmt.Errorf("%s: %w", k.paths[0], err)
	}
	return value, seen, nil
}

// OpenAuthorities reads a file of certificates of authorities.
func OpenAuthorities(path string, warn func(problem string)) (*Kept[*x509.CertPool], error) {
	return Open(func(contents [][]byte) (*x509.CertPool, error) {
		certificates, err := cert.ParseCertsPEM(contents[0])
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		for _, c := range certificates {
			pool.AddCert(c)
		}
		return pool, nil
	}, warn, path)
}

// OpenPair reads a certificate with its chain, and its key.
func OpenPair(certFile, keyFile string, warn func(problem string)) (*Kept[*tls.Certificate],
	error) {
	return Open(func(contents [][]byte) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		return &pair, err
	}, warn, certFile, keyFile)
}
