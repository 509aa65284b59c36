package apiserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Services are delivered without what no container sees: the agent keeps all of them.
func TestServicesAreReduced(t *testing.T) {
	want := v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db", UID: "u", ResourceVersion: "7"},
		Spec: v1.ServiceSpec{ClusterIP: "10.96.0.9",
			Ports: []v1.ServicePort{{Name: "sql", Protocol: v1.ProtocolTCP, Port: 5432}}},
	}
	large := want.DeepCopy()
	large.Annotations = map[string]string{"note": "long"}
	large.Labels = large.Annotations
	large.Spec.Selector = large.Annotations
	large.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	got, err := objectOf(large)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, got.Service); diff != "" {
		t.Error(diff)
	}
}
