package e2e

// takeOverStatics are static pods, by the names of their manifests. The first is like a component
// of the control plane that kubeadm runs.
var takeOverStatics = map[string]string{
	"plane": `apiVersion: v1
kind: Pod
metadata:
  annotations: {kubeadm.kubernetes.io/etcd.advertise-client-urls: "https://192.0.2.10:2379"}
  creationTimestamp: null
  labels: {component: plane, tier: control-plane}
  name: plane
  namespace: kube-system
spec:
  containers:
  - args: [hold, --http, "PLANEPORT", RECORDER, plane]
    image: IMAGE
    imagePullPolicy: IfNotPresent
    livenessProbe:
      failureThreshold: 8
      httpGet: {host: 127.0.0.1, path: /healthz, port: probe-port, scheme: HTTP}
      initialDelaySeconds: 10
      periodSeconds: 10
      timeoutSeconds: 60
    name: plane
    ports: [{containerPort: PLANEPORT, name: probe-port, protocol: TCP}]
    readinessProbe:
      failureThreshold: 3
      httpGet: {host: 127.0.0.1, path: /healthz, port: probe-port, scheme: HTTP}
      periodSeconds: 1
      timeoutSeconds: 60
    resources: {requests: {cpu: 10m}}
    startupProbe:
      failureThreshold: 240
      httpGet: {host: 127.0.0.1, path: /healthz, port: probe-port, scheme: HTTP}
      periodSeconds: 1
      timeoutSeconds: 60
    volumeMounts: [{mountPath: /etc/ssl/certs, name: ca-certs, readOnly: true}]
  hostNetwork: true
  priority: 2000001000
  priorityClassName: system-node-critical
  securityContext: {seccompProfile: {type: RuntimeDefault}}
  volumes: [{hostPath: {path: /etc/ssl/certs, type: DirectoryOrCreate}, name: ca-certs}]
status: {}
`,
	"statue": `apiVersion: v1
kind: Pod
metadata: {name: statue, namespace: town}
spec:
  terminationGracePeriodSeconds: 5
  volumes: [{name: work, emptyDir: {}}]
  initContainers:
  - name: first
    image: IMAGE
    args: [write, /work/file, hello]
    volumeMounts: [{name: work, mountPath: /work}]
  containers:
  - name: main
    image: IMAGE
    args: [hold, RECORDER, statue]
    resources: {limits: {cpu: 50m, memory: 64Mi}}
    volumeMounts: [{name: work, mountPath: /work, subPath: deep/er}]
`,
	"frozen": `apiVersion: v1
kind: Pod
metadata: {name: frozen, namespace: town, uid: 0c5d25e2-9e3a-4a0e-8f35-1a4de0a3d001}
spec:
  restartPolicy: OnFailure
  containers:
  - {name: main, image: IMAGE, args: [exit, --message, done]}
  - {name: other, image: IMAGE, args: [hold, RECORDER, frozen]}
`,
}

// takeOverObjects are objects that the pods of takeOverWorkloads use.
const takeOverObjects = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: town}
data: {colour: green, shape: round}
---
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: town}
stringData: {door: open sesame}
`

// takeOverWorkloads are pods that a controller keeps.
const takeOverWorkloads = `apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: town}
spec:
  replicas: 3
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: main
        image: IMAGE
        args: [hold, --http, "8080", RECORDER, $(POD)]
        env:
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
        envFrom: [{secretRef: {name: keys}}]
        ports: [{containerPort: 8080, name: http}]
        startupProbe: {httpGet: {path: /healthz, port: http}, failureThreshold: 600,
          periodSeconds: 1, timeoutSeconds: 60}
        readinessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1,
          timeoutSeconds: 60}
        livenessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 5,
          timeoutSeconds: 60}
        lifecycle: {preStop: {exec: {command: [/sample, write, /mark/stopped, x]}}}
        volumeMounts:
        - {name: settings, mountPath: /settings}
        - {name: keys, mountPath: /keys}
        - {name: mark, mountPath: /mark}
      volumes:
      - {name: settings, configMap: {name: settings}}
      - {name: keys, secret: {secretName: keys, defaultMode: 0400}}
      - {name: mark, hostPath: {path: MARKS, type: DirectoryOrCreate}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: post, namespace: town}
spec:
  selector: {matchLabels: {app: post}}
  template:
    metadata: {labels: {app: post}}
    spec:
      hostNetwork: true
      terminationGracePeriodSeconds: 5
      containers: [{name: main, image: IMAGE, args: [hold, RECORDER, post]}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: depot, namespace: town}
spec:
  replicas: 2
  serviceName: depot
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: depot}}
  template:
    metadata: {labels: {app: depot}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: main
        image: IMAGE
        args: [hold, RECORDER, $(POD)]
        env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: chore, namespace: town}
spec:
  completions: 2
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: IMAGE, args: [exit, --message, done]}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: toil, namespace: town}
spec:
  template:
    metadata: {labels: {app: toil}}
    spec:
      restartPolicy: OnFailure
      terminationGracePeriodSeconds: 5
      containers: [{name: main, image: IMAGE, args: [hold, RECORDER, toil]}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: botch, namespace: town}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: IMAGE, args: [exit, --code, "3"]}]
`

// takeOverPods are the specs of pods without a controller, by their names, but for fields that all
// of them have. Those of crashers go on to restart.
var takeOverPods = map[string]string{
	"plain": `
  containers: [{name: main, image: IMAGE, args: [hold, RECORDER, plain]}]`,
	"burst": `
  containers:
  - {name: main, image: IMAGE, args: [hold, RECORDER, burst], resources: {
      requests: {cpu: 10m, memory: 16Mi, ephemeral-storage: 1Mi}, limits: {memory: 64Mi}}}`,
	"sure": `
  containers:
  - {name: main, image: IMAGE, args: [hold, RECORDER, sure], resources: {
      limits: {cpu: 50m, memory: 64Mi}}}`,
	"whole": `
  resources: {requests: {cpu: 20m, memory: 64Mi}, limits: {cpu: 100m, memory: 128Mi}}
  containers:
  - {name: main, image: IMAGE, args: [hold, RECORDER, whole]}
  - {name: other, image: IMAGE, args: [sleep]}`,
	"resized": `
  containers:
  - {name: main, image: IMAGE, args: [hold, RECORDER, resized], resources: {
      requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 50m, memory: 64Mi}}}`,
	"inited": `
  initContainers:
  - {name: first, image: IMAGE, args: [exit]}
  - {name: second, image: IMAGE, args: [exit, --message, ready]}
  containers: [{name: main, image: IMAGE, args: [hold, RECORDER, inited]}]`,
	"initing": `
  initContainers:
  - {name: first, image: IMAGE, args: [exit]}
  - {name: second, image: IMAGE, args: [hold, RECORDER, initing]}
  containers: [{name: main, image: IMAGE, args: [sleep]}]`,
	"sidecars": `
  initContainers:
  - {name: before, image: IMAGE, args: [exit]}
  - {name: side, image: IMAGE, restartPolicy: Always, args: [hold, --http, "8080", RECORDER, side],
      startupProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, timeoutSeconds: 60,
        failureThreshold: 600},
      readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, timeoutSeconds: 60}}
  - {name: after, image: IMAGE, args: [exit]}
  containers: [{name: main, image: IMAGE, args: [hold, RECORDER, sidecars]}]`,
	"half": `
  restartPolicy: Never
  containers:
  - {name: main, image: IMAGE, args: [hold, RECORDER, half]}
  - {name: done, image: IMAGE, args: [exit]}
  - {name: failed, image: IMAGE, args: [exit, --code, "4"]}`,
	"ended": `
  restartPolicy: Never
  containers: [{name: main, image: IMAGE, args: [exit, --code, "5", --message, because]}]`,
	"crasher": `
  containers:
  - {name: main, image: IMAGE, args: [exit, --code, "1"]}
  - {name: other, image: IMAGE, args: [hold, RECORDER, beside]}`,
	"restarted": `
  containers: [{name: main, image: IMAGE, args: [hold, RECORDER, restarted]}]`,
	"checked": `
  containers:
  - {name: main, image: IMAGE, args: [health],
      startupProbe: {exec: {command: [/sample, check]}, periodSeconds: 1, timeoutSeconds: 60,
        failureThreshold: 600},
      readinessProbe: {exec: {command: [/sample, check]}, periodSeconds: 2, timeoutSeconds: 60},
      livenessProbe: {tcpSocket: {port: 8082}, timeoutSeconds: 60}}
  - {name: other, image: IMAGE, args: [health, --http, "9080", --grpc, "9081", --tcp, "9082"],
      readinessProbe: {grpc: {port: 9081}, periodSeconds: 1, timeoutSeconds: 60},
      livenessProbe: {exec: {command: [/sample, check]}, timeoutSeconds: 60,
        terminationGracePeriodSeconds: 3}}`,
	"sick": `
  containers:
  - {name: main, image: IMAGE, args: [health, --sick],
      readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}}`,
	"starting": `
  containers:
  - {name: main, image: IMAGE, args: [health, --sick],
      startupProbe: {exec: {command: [/sample, check]}, periodSeconds: 5, timeoutSeconds: 60,
        failureThreshold: 600}}`,
	"hooked": `
  containers:
  - {name: main, image: IMAGE, args: [hold, RECORDER, hooked], lifecycle: {
      postStart: {exec: {command: [/sample, say, has started]}},
      preStop: {exec: {command: [/sample, write, /mark/hooked, x]}}},
      volumeMounts: [{name: mark, mountPath: /mark}]}
  volumes: [{name: mark, hostPath: {path: MARKS, type: DirectoryOrCreate}}]`,
	"volumes": `
  hostname: here
  setHostnameAsFQDN: true
  subdomain: there
  dnsConfig: {nameservers: [192.0.2.1], searches: [x.test]}
  hostAliases: [{ip: 192.0.2.9, hostnames: [a.test]}]
  securityContext: {fsGroup: 2000}
  containers:
  - {name: main, image: IMAGE, args: [hold, RECORDER, volumes], terminationMessagePath: /message,
      volumeMounts: [
        {name: disk, mountPath: /disk}, {name: disk, mountPath: /part, subPath: part},
        {name: memory, mountPath: /memory}, {name: settings, mountPath: /settings},
        {name: settings, mountPath: /shape, subPath: shape}, {name: keys, mountPath: /keys},
        {name: info, mountPath: /info}, {name: all, mountPath: /all},
        {name: mark, mountPath: /mark, readOnly: true}, {name: made, mountPath: /made}]}
  volumes:
  - {name: disk, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: settings, configMap: {name: settings}}
  - {name: keys, secret: {secretName: keys}}
  - {name: info, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}},
      {path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
  - {name: all, projected: {sources: [{serviceAccountToken: {path: token, audience: a.test,
      expirationSeconds: 3600}}, {configMap: {name: settings}}, {secret: {name: keys}},
      {downwardAPI: {items: [{path: uid, fieldRef: {fieldPath: metadata.uid}}]}}]}}
  - {name: mark, hostPath: {path: MARKS, type: DirectoryOrCreate}}
  - {name: made, emptyDir: {sizeLimit: 1Gi}}`,
	"shared": `
  shareProcessNamespace: true
  containers:
  - {name: main, image: IMAGE, args: [hold, RECORDER, shared]}
  - {name: other, image: IMAGE, args: [sleep]}`,
	"limited": `
  activeDeadlineSeconds: 86400
  securityContext: {runAsUser: 1000, runAsGroup: 1000, supplementalGroups: [5]}
  containers: [{name: main, image: IMAGE, args: [hold, RECORDER, limited], securityContext: {
      capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true,
      allowPrivilegeEscalation: false}}]`,
	"debugged": `
  containers: [{name: main, image: IMAGE, args: [hold, RECORDER, debugged]}]`,
	"gated": `
  readinessGates: [{conditionType: example.test/gate}]
  containers: [{name: main, image: IMAGE, args: [hold, RECORDER, gated]}]`,
}
