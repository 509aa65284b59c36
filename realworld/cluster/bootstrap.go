package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
)

// bootstrapManifest is a token with which a new node may request its certificate, and the roles for
// an automatic approval of its request: the same that kubeadm binds.
const bootstrapManifest = `
apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-ID, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: "ID", token-secret: "SECRET", usage-bootstrap-authentication: "true"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: seedlet-test-bootstrap}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:node-bootstrapper}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: system:bootstrappers}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: seedlet-test-bootstrap-approval}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:certificates.k8s.io:certificatesigningrequests:nodeclient
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: system:bootstrappers}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: seedlet-test-renewal-approval}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:certificates.k8s.io:certificatesigningrequests:selfnodeclient
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: system:nodes}]
`

// BootstrapKubeconfig creates a bootstrap token and writes a kubeconfig with it, for
// --bootstrap-kubeconfig. The controller manager approves and signs the certificates that nodes
// request with it.
func (c *Cluster) BootstrapKubeconfig(ctx context.Context) (string, error) {
	// Letters and digits of a random text: an id of 6, a secret of 16.
	text := strings.ToLower(rand.Text())
	id, secret := text[:6], text[6:22]
	manifest := strings.NewReplacer("ID", id, "SECRET", secret).Replace(bootstrapManifest)
	if err := c.Apply(ctx, manifest); err != nil {
		return "", fmt.Errorf("making a bootstrap token: %w", err)
	}
	return c.Kubeconfig("bootstrap-"+id, Credential{Token: id + "." + secret})
}
