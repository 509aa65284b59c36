package manifest

import (
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Each case changes one thing in a valid pod: the text after the first bar replaces the first text,
// and the error must be about the field after the second bar.
var invalidChanges = []string{
	"name: web | name: Web | metadata.name",
	"name: web | name: a/../b | metadata.name",
	"namespace: shop | namespace: ../shop | metadata.namespace",
	"namespace: shop | namespace: a.b | metadata.namespace",
	"uid: u-1 | uid: ../../etc | metadata.uid",
	"uid: u-1 | uid: '..' | metadata.uid",
	"uid: u-1 | uid: a/b | metadata.uid",
	"app: web | 'a b': web | metadata.labels",
	"restartPolicy: Always | restartPolicy: Sometimes | spec.restartPolicy",
	"GracePeriodSeconds: 5 | GracePeriodSeconds: -1 | spec.terminationGracePeriodSeconds",
	"activeDeadlineSeconds: 9 | activeDeadlineSeconds: 0 | spec.activeDeadlineSeconds",
	"dnsPolicy: Default | dnsPolicy: Cluster | spec.dnsPolicy",
	"dnsPolicy: Default | dnsPolicy: None | spec.dnsConfig.nameservers",
	"hostname: h | hostname: h.x | spec.hostname",
	"hostPID: false | shareProcessNamespace: true\n  hostPID: true | " +
		"spec.shareProcessNamespace",
	"hostPID: false | hostUsers: false\n  hostPID: true | spec.hostPID",
	"- name: setup | - name: app | spec.containers[0].name",
	"- name: setup | - name: Setup | spec.initContainers[0].name",
	"- name: app | - name: '' | spec.containers[0].name",
	"image: app:1 | image: '' | spec.containers[0].image",
	"image: app:1 | image: ' app' | spec.containers[0].image",
	"PullPolicy: Never | PullPolicy: Rarely | spec.containers[0].imagePullPolicy",
	"containerPort: 80 | containerPort: 0 | spec.containers[0].ports[0].containerPort",
	"containerPort: 80 | containerPort: 65536 | spec.containers[0].ports[0].containerPort",
	"name: http | name: HTTP | spec.containers[0].ports[0].name",
	"protocol: TCP | protocol: ICMP | spec.containers[0].ports[0].protocol",
	"hostPort: 8080 | hostPort: 70000 | spec.containers[0].ports[0].hostPort",
	"hostPort: 8081 | hostPort: 8080 | spec.containers[0].ports[1].hostPort",
	"hostNetwork: false | hostNetwork: true | spec.containers[0].ports[0].hostPort",
	"name: VAR | name: 'A=B' | spec.containers[0].env[0].name",
	"fieldPath: metadata.name | fieldPath: spec.x | " +
		"spec.containers[0].env[1].valueFrom.fieldRef.fieldPath",
	"name: data, mountPath | name: other, mountPath | " +
		"spec.containers[0].volumeMounts[0].name",
	"mountPath: /data | mountPath: '' | spec.containers[0].volumeMounts[0].mountPath",
	"mountPath: /data | mountPath: /logs | spec.containers[0].volumeMounts[1].mountPath",
	"subPath: a | subPath: a/../../b | spec.containers[0].volumeMounts[0].subPath",
	"subPath: a | subPath: /a | spec.containers[0].volumeMounts[0].subPath",
	"subPath: a | mountPropagation: Bidirectional | " +
		"spec.containers[0].volumeMounts[0].mountPropagation",
	"cpu: 100m | cpu: 2 | spec.containers[0].resources.requests[cpu]",
	"cpu: 100m | cpu: -1 | spec.containers[0].resources.requests[cpu]",
	"cpu: 100m | gpu: 1 | spec.containers[0].resources.requests[gpu]",
	"cpu: 100m | x.io/gpu: 1 | spec.containers[0].resources.requests[x.io/gpu]",
	"periodSeconds: 5 | periodSeconds: -5 | spec.containers[0].livenessProbe.periodSeconds",
	"periodSeconds: 5 | successThreshold: 2 | " +
		"spec.containers[0].livenessProbe.successThreshold",
	"httpGet: {port: http} | httpGet: {port: 0} | " +
		"spec.containers[0].livenessProbe.httpGet.port",
	"httpGet: {port: http} | initialDelaySeconds: 1 | spec.containers[0].livenessProbe",
	"seconds: 3 | seconds: 6 | spec.containers[0].lifecycle.preStop.sleep.seconds",
	"runAsUser: 1 | runAsUser: -1 | spec.containers[0].securityContext.runAsUser",
	"runAsUser: 1 | procMount: None | spec.containers[0].securityContext.procMount",
	"name: data, emptyDir | name: Data, emptyDir | spec.volumes[0].name",
	"name: logs, hostPath | name: data, hostPath | spec.volumes[1].name",
	"path: /var/logs | path: /var/../etc | spec.volumes[1].hostPath.path",
	"path: /var/logs | path: '' | spec.volumes[1].hostPath.path",
	"medium: Memory | sizeLimit: -1Gi | spec.volumes[0].emptyDir.sizeLimit",
	"medium: Memory | medium: Tape | spec.volumes[0].emptyDir.medium",
	"emptyDir: {medium: Memory} | configMap: {name: c} | spec.volumes[0].configMap",
	"emptyDir: {medium: Memory} | secret: {secretName: s} | spec.volumes[0].secret",
	"emptyDir: {medium: Memory} | persistentVolumeClaim: {claimName: c} | " +
		"spec.volumes[0].persistentVolumeClaim",
	"emptyDir: {medium: Memory} | projected: {sources: [{serviceAccountToken: {path: t}}]} | " +
		"spec.volumes[0].projected.sources[0].serviceAccountToken",
	"emptyDir: {medium: Memory} | " +
		"downwardAPI: {items: [{path: ../a, fieldRef: {fieldPath: metadata.name}}]} | " +
		"spec.volumes[0].downwardAPI.items[0].path",
	"emptyDir: {medium: Memory} | image: {} | spec.volumes[0].image.reference",
	"emptyDir: {medium: Memory} | image: {reference: i, pullPolicy: Often} | " +
		"spec.volumes[0].image.pullPolicy",
	"value: x | valueFrom: {secretKeyRef: {name: s, key: k}} | " +
		"spec.containers[0].env[0].valueFrom.secretKeyRef",
	"value: x | valueFrom: {configMapKeyRef: {name: s, key: k}} | " +
		"spec.containers[0].env[0].valueFrom.configMapKeyRef",
	"value: x | valueFrom: {fileKeyRef: {volumeName: logs, path: f, key: k}} | " +
		"spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName",
	"value: x | valueFrom: {fileKeyRef: {volumeName: data, path: ../f, key: k}} | " +
		"spec.containers[0].env[0].valueFrom.fileKeyRef.path",
	"value: x | valueFrom: {fileKeyRef: {volumeName: data, path: f, key: 'a=b'}} | " +
		"spec.containers[0].env[0].valueFrom.fileKeyRef.key",
	"hostname: h | serviceAccountName: s | spec.serviceAccountName",
	"hostname: h | serviceAccount: s | spec.serviceAccountName",
	"hostname: h | imagePullSecrets: [{name: s}] | spec.imagePullSecrets",
	"hostname: h | resourceClaims: [{name: c}] | spec.resourceClaims",
	"hostname: h | schedulingGates: [{name: g}] | spec.schedulingGates",
	"hostname: h | ephemeralContainers: [{name: e, image: i}] | spec.ephemeralContainers",
	"hostname: h | os: {name: windows} | spec.os.name",
	"hostname: h | hostnameOverride: A_b | spec.hostnameOverride",
	"hostname: h | hostAliases: [{ip: x}] | spec.hostAliases[0].ip",
	"hostname: h | tolerations: [{operator: Is}] | spec.tolerations[0].operator",
	"hostname: h | securityContext: {sysctls: [{name: a/../b, value: x}]} | " +
		"spec.securityContext.sysctls[0].name",
	"hostname: h | " +
		"securityContext: {seccompProfile: {type: Localhost, localhostProfile: ../x}} | " +
		"spec.securityContext.seccompProfile.localhostProfile",
	"hostname: h | resources: {limits: {cpu: 500m}} | " +
		"spec.containers[0].resources.limits[cpu]",
	"hostname: h | resources: {requests: {cpu: 50m}} | spec.resources.requests[cpu]",
	"image: setup:1 | image: s\n    readinessProbe: {tcpSocket: {port: 1}} | " +
		"spec.initContainers[0].readinessProbe",
}

func TestValidateRejects(t *testing.T) {
	for _, change := range invalidChanges {
		expectRejected(t, change)
	}
}

// validManifest has every field that the cases above change.
const validManifest = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, uid: u-1, labels: {app: web}}
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 5
  activeDeadlineSeconds: 9
  dnsPolicy: Default
  hostname: h
  hostNetwork: false
  hostPID: false
  initContainers:
  - name: setup
    image: setup:1
  containers:
  - name: app
    image: app:1
    imagePullPolicy: Never
    ports:
    - {name: http, containerPort: 80, hostPort: 8080, protocol: TCP}
    - {containerPort: 81, hostPort: 8081}
    env:
    - {name: VAR, value: x}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: APP, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    volumeMounts:
    - {name: data, mountPath: /data, subPath: a}
    - {name: logs, mountPath: /logs}
    resources: {requests: {cpu: 100m}, limits: {cpu: 1}}
    livenessProbe: {httpGet: {port: http}, periodSeconds: 5}
    lifecycle: {preStop: {sleep: {seconds: 3}}}
    securityContext: {runAsUser: 1}
  volumes:
  - {name: data, emptyDir: {medium: Memory}}
  - {name: logs, hostPath: {path: /var/logs}}
`

func TestValidateAcceptsValidPod(t *testing.T) {
	if _, warnings, err := DecodeText("f", []byte(validManifest), "n"); err != nil || warnings != nil {
		t.Fatal(err, warnings)
	}
}

func expectRejected(t *testing.T, change string) {
	t.Helper()
	parts := strings.Split(change, " | ")
	if len(parts) != 3 || !strings.Contains(validManifest, parts[0]) {
		t.Errorf("%q does not change the valid manifest", change)
		return
	}
	_, _, err := DecodeText("f", []byte(strings.Replace(validManifest, parts[0], parts[1], 1)), "n")
	if err == nil {
		t.Errorf("%s: accepted", change)
		return
	}
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "f: "), "[")
	if !strings.HasPrefix(text, parts[2]+": ") || strings.Contains(text, "\n") {
		t.Errorf("%s: got %v", change, err)
	}
}

// Every volume source of the API is known: a pod with an unknown one would be rejected as a volume
// without a source.
func TestEveryVolumeSourceIsKnown(t *testing.T) {
	sources := reflect.TypeFor[v1.VolumeSource]()
	for i := range sources.NumField() {
		var volume v1.Volume
		field := reflect.ValueOf(&volume.VolumeSource).Elem().Field(i)
		field.Set(reflect.New(field.Type().Elem()))
		volume.Name = "v"
		defaultVolume(&volume)
		v := &validator{volumes: map[string]*v1.Volume{}}
		v.checkVolumes([]v1.Volume{volume}, nil)
		for _, err := range v.errs {
			if strings.Contains(err.Error(), "must have a source") {
				t.Errorf("%s is not known", sources.Field(i).Name)
			}
		}
	}
}
