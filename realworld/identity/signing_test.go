package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificates "k8s.io/api/certificates/v1"
	"k8s.io/client-go/util/certificate"
)

// A request that an earlier agent has sent, and whose certificate has expired since then, is given
// up with its key: its name follows from that. The text of the error is client-go's.
func TestExpiredRequest(t *testing.T) {
	f := newFake(t)
	opts, l := requestOptions(t, f)
	client, err := NewGroups(l.Config(), l.conn.Client)
	if err != nil {
		t.Fatal(err)
	}
	files, err := certificate.NewFileStore(pairName, opts.CertDir, opts.CertDir, "", "")
	if err != nil {
		t.Fatal(err)
	}
	request := signingRequest{pairName: pairName,
		template: x509.CertificateRequest{Subject: nodeSubject("node-1")},
		signer:   certificates.KubeAPIServerClientKubeletSignerName,
		usages:   certificate.DefaultKubeletClientGetUsages}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := request.obtain(ctx, client, files)
		ended <- err
	}()
	f.waitForRequests(t, 1)
	if cancel(); <-ended == nil {
		t.Fatal("a certificate without an approval")
	}
	f.mu.Lock()
	first := f.request.Name
	expired, _ := f.authority.pair(t, node, -2*time.Hour, -time.Hour)
	f.request.Status.Certificate = expired
	f.mu.Unlock()
	close(f.approve)
	if _, err := request.obtain(t.Context(), client, files); err == nil ||
		!strings.Contains(err.Error(), "not compatible") {
		t.Fatalf("error %v for a request whose certificate has expired", err)
	}
	_, err = os.Stat(filepath.Join(opts.CertDir, pairName+".key.tmp"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its key: %v", err)
	}
	if _, err := request.obtain(t.Context(), client, files); err != nil || f.request.Name == first {
		t.Errorf("the next request is %s, %v", f.request.Name, err)
	}
}

// A request waits a quarter of an hour for its approval. The next one is the same.
func TestApprovalTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBubbleFake(t, nil)
		f.approve = make(chan struct{})
		warned := make(chan string, 10)
		i := startInBubble(t, f, node, func(problem string) { warned <- problem })
		defer i.Close()
		start := time.Now()
		warning := <-warned
		if took := time.Since(start); took < 14*time.Minute || took > 16*time.Minute {
			t.Errorf("gave up after %v", took)
		}
		if !strings.Contains(warning, "waiting for the approval of node-csr-") {
			t.Errorf("warning %q", warning)
		}
		if got := f.requestsWithin(time.Hour); got != 1 {
			t.Errorf("%d requests, want the first alone", got)
		}
		close(f.approve)
		time.Sleep(time.Minute)
		synctest.Wait()
		if current, err := i.currentCertificate(); err != nil ||
			time.Until(current.Leaf.NotAfter) > 2*time.Hour {
			t.Errorf("the approved certificate is not used: %v", err)
		}
	})
}
