package cluster

import (
	"fmt"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// kubeconfig is the file that says where the API server is, how to know it, and who one is. It
// holds everything in itself, so it can be copied.
type kubeconfig struct {
	APIVersion     string         `json:"apiVersion"`
	Kind           string         `json:"kind"`
	Clusters       []namedCluster `json:"clusters"`
	Contexts       []namedContext `json:"contexts"`
	CurrentContext string         `json:"current-context"`
	Users          []namedUser    `json:"users"`
}

type namedCluster struct {
	Name    string      `json:"name"`
	Cluster clusterInfo `json:"cluster"`
}

type clusterInfo struct {
	Server      string `json:"server"`
	Certificate []byte `json:"certificate-authority-data"`
}

type namedContext struct {
	Name    string      `json:"name"`
	Context contextInfo `json:"context"`
}

type contextInfo struct {
	Cluster string `json:"cluster"`
	User    string `json:"user"`
}

type namedUser struct {
	Name string     `json:"name"`
	User Credential `json:"user"`
}

// Credential is how a user proves who they are: with a certificate and its key, both in PEM, or
// with a bearer token.
type Credential struct {
	Certificate []byte `json:"client-certificate-data,omitempty"`
	Key         []byte `json:"client-key-data,omitempty"`
	Token       string `json:"token,omitempty"`
}

// Kubeconfig writes a kubeconfig for a credential, into a file whose name is made from the given
// one, and returns its path.
func (c *Cluster) Kubeconfig(name string, credential Credential) (string, error) {
	data, err := yaml.Marshal(kubeconfig{
		APIVersion: "v1", Kind: "Config", CurrentContext: "seedlet-test",
		Clusters: []namedCluster{{"seedlet-test", clusterInfo{c.URL, c.ca.pem()}}},
		Contexts: []namedContext{{"seedlet-test", contextInfo{"seedlet-test", name}}},
		Users:    []namedUser{{name, credential}},
	})
	if err != nil {
		return "", fmt.Errorf("making the kubeconfig of %s: %w", name, err)
	}
	file := strings.NewReplacer("/", "-", ":", "-").Replace(name) + ".kubeconfig"
	path := filepath.Join(c.Dir, file)
	return path, writeSecret(path, data)
}

// UserKubeconfig writes a kubeconfig for a user in groups, who shows a certificate of the
// cluster's authority.
func (c *Cluster) UserKubeconfig(user string, groups ...string) (string, error) {
	p, err := c.ca.client(user, groups...)
	if err != nil {
		return "", err
	}
	return c.Kubeconfig(user, Credential{Certificate: p.certificate, Key: p.key})
}

// NodeKubeconfig writes the kubeconfig of the node agent of a node.
func (c *Cluster) NodeKubeconfig(node string) (string, error) {
	return c.UserKubeconfig("system:node:"+node, nodesGroup)
}

// Admin is the path of the kubeconfig of one who may do everything.
func (c *Cluster) Admin() string { return filepath.Join(c.Dir, "admin.kubeconfig") }
