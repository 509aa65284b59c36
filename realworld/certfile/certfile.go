// Package certfile holds the content of certificate files, and reloads files that have changed.
//
// The contract: the files are checked on each call of Current; there is no background goroutine. So
// a replaced file takes effect at the next handshake or request, and an idle node does no work. If
// the files cannot be read or parsed (half written, empty, missing), the content that was read last
// stays in use: a certificate and its key are replaced one after the other. Start reading at Open.
package certfile

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"

	"k8s.io/client-go/util/cert"

	"seedlet.dev/realworld/regularfile"
)

// BytesMax bounds a file of certificates or of a key. A bundle of all public authorities has about
// 300 KiB.
const BytesMax = 4 << 20

// Reloader holds the parsed content of one or several files. It is safe for concurrent use.
type Reloader[T any] struct {
	paths []string
	parse func(contents [][]byte) (T, error)
	warn  func(problem string)

	mu     sync.Mutex
	infos  []os.FileInfo // of the last successful read; nil if the last read failed
	warned string
	value  T
}

// Open reads files. Each later failure to reload them is reported to warn, once.
func Open[T any](parse func(contents [][]byte) (T, error), warn func(problem string),
	paths ...string) (*Reloader[T], error) {
	r := &Reloader[T]{paths: paths, parse: parse, warn: warn}
	value, infos, err := r.read()
	if err != nil {
		return nil, err
	}
	r.value, r.infos = value, infos
	return r, nil
}

// Current returns the content of the files as of now, or the last content that could be read.
func (r *Reloader[T]) Current() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.hasChanged() {
		return r.value
	}
	value, infos, err := r.read()
	if err != nil {
		r.infos = nil
		if problem := err.Error(); problem != r.warned {
			r.warned = problem
			r.warn(problem + "; the content that was read before stays in use")
		}
		return r.value
	}
	r.value, r.infos, r.warned = value, infos, ""
	return r.value
}

func (r *Reloader[T]) hasChanged() bool {
	if r.infos == nil {
		return true
	}
	for i, path := range r.paths {
		info, err := os.Stat(path)
		last := r.infos[i]
		if err != nil || !os.SameFile(info, last) || info.Size() != last.Size() ||
			!info.ModTime().Equal(last.ModTime()) {
			return true
		}
	}
	return false
}

// read stats a file before reading it, so that a write in between is noticed at the next check.
func (r *Reloader[T]) read() (value T, infos []os.FileInfo, err error) {
	var contents [][]byte
	for _, path := range r.paths {
		info, err := os.Stat(path)
		if err != nil {
			return value, nil, err
		}
		content, err := regularfile.Read(path, BytesMax)
		if err != nil {
			return value, nil, err
		}
		infos, contents = append(infos, info), append(contents, content)
	}
	if value, err = r.parse(contents); err != nil {
		return value, nil, fmt.Errorf("%s: %w", r.paths[0], err)
	}
	return value, infos, nil
}

// OpenAuthorities reads a PEM file of CA certificates.
func OpenAuthorities(path string, warn func(problem string)) (*Reloader[*x509.CertPool], error) {
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

// OpenPair reads a certificate with its chain, and its private key.
func OpenPair(certFile, keyFile string, warn func(problem string)) (*Reloader[*tls.Certificate],
	error) {
	return Open(func(contents [][]byte) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		return &pair, err
	}, warn, certFile, keyFile)
}
