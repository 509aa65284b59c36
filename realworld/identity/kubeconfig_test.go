package identity

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

const clusterFields = `apiVersion: v1
kind: Config
current-context: x
clusters:
- name: c
  cluster: {server: "https://192.0.2.1:6443/prefix", tls-server-name: api.example,
    proxy-url: "http://proxy.example:3128", disable-compression: true, `

// The kubeconfig that is written after a bootstrap reaches the server as the bootstrap kubeconfig
// does, but with the certificate.
func TestWrittenKubeconfig(t *testing.T) {
	a, dir := newAuthority(t), t.TempDir()
	cert, key := a.pair(t, node, -time.Hour, time.Hour)
	pem := filepath.Join(dir, "client.pem")
	write(t, pem, string(cert)+string(key))
	write(t, filepath.Join(dir, "ca.crt"), string(cert))
	for name, verification := range map[string]string{
		"CA": "certificate-authority: ca.crt", "insecure": "insecure-skip-tls-verify: true",
	} {
		path := filepath.Join(dir, "bootstrap")
		write(t, path, clusterFields+verification+"}\nusers: [{name: u, user: {token: boot}}]\n"+
			"contexts: [{name: x, context: {cluster: c, user: u}}]\n")
		bootstrap, err := readKubeconfig("--bootstrap-kubeconfig", path)
		if err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(dir, "made", "kubelet.conf")
		server := rest.AnonymousClientConfig(bootstrap.config)
		if err := writeKubeconfig(path, server, pem); err != nil {
			t.Fatal(err)
		}
		written, err := readKubeconfig("--kubeconfig", path)
		if err != nil {
			t.Fatal(err)
		}
		got := written.config
		if got.Host != "https://192.0.2.1:6443/prefix" || got.ServerName != "api.example" ||
			!got.DisableCompression || got.Insecure != (name == "insecure") ||
			(got.CAFile == filepath.Join(dir, "ca.crt")) != (name == "CA") {
			t.Errorf("%s: written for %+v", name, got)
		}
		if got.CertFile != pem || got.KeyFile != pem || got.BearerToken != "" ||
			written.certificate.Leaf.Subject.CommonName != node {
			t.Errorf("%s: written with %+v", name, got)
		}
		proxy, err := got.Proxy(&http.Request{})
		if err != nil || proxy.String() != "http://proxy.example:3128" {
			t.Errorf("%s: written with the proxy %v, %v", name, proxy, err)
		}
	}
}
