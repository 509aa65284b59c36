package world

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strings"

	"google.golang.org/protobuf/proto"
)

// The registry of all body types, by name. One recorder, one replayer, one hash and one trace serve
// all ports through it.

// jsonBodies are the bodies that are not protobuf messages. The port is set for effects and empty
// for events.
var jsonBodies = []struct {
	body any
	port PortName
}{
	{&ReadFiles{}, PortFS}, {&FilesRead{}, ""}, {&ListDir{}, PortFS}, {&DirListed{}, ""},
	{&MakeDir{}, PortFS}, {&WriteFile{}, PortFS}, {&RemoveTree{}, PortFS}, {&Done{}, ""},
	{&ReadTail{}, PortFS}, {&TailRead{}, ""}, {&StatPath{}, PortFS}, {&PathInfo{}, ""},
	{&MakeFile{}, PortFS}, {&WriteDir{}, PortFS}, {&Rename{}, PortFS}, {&MakeLink{}, PortFS},
	{&ReadLinks{}, PortFS}, {&LinksRead{}, ""}, {&Compress{}, PortFS},
	{&HoldDevice{}, PortFS}, {&ReleaseDevice{}, PortFS},
	{&ShareWithGroup{}, PortFS}, {&MountMemory{}, PortFS}, {&Unmount{}, PortFS},
	{&BindSubPath{}, PortFS}, {&MeasureTree{}, PortFS}, {&TreeMeasured{}, ""},
	{&MeasureTrees{}, PortFS}, {&TreesMeasured{}, ""},
	{&MeasureFiles{}, PortFS}, {&FilesMeasured{}, ""},
	{&MeasureFilesystem{}, PortFS}, {&FilesystemMeasured{}, ""},
	{&MeasureDevice{}, PortFS}, {&DeviceMeasured{}, ""},
	{&Watch{}, PortFS}, {&FileChanged{}, ""}, {&ReadInVolume{}, PortFS},
	{&ListMounts{}, PortFS}, {&MountsListed{}, ""},
	{&BindMount{}, PortFS}, {&Mounted{}, ""}, {&MountDevice{}, PortFS}, {&MountNFS{}, PortFS},
	{&HTTPGet{}, PortNetwork}, {&HTTPGot{}, ""}, {&TCPConnect{}, PortNetwork},
	{&GRPCCheck{}, PortNetwork}, {&GRPCChecked{}, ""},
	{&FetchManifest{}, PortNetwork}, {&ManifestFetched{}, ""},
	{&WatchObjects{}, PortAPI}, {&UnwatchObjects{}, PortAPI}, {&ObjectsListed{}, ""},
	{&ObjectChanged{}, ""}, {&ObjectGone{}, ""}, {&WatchFailing{}, ""},
	{&GetObject{}, PortAPI}, {&ObjectRead{}, ""}, {&CreateObject{}, PortAPI},
	{&UpdateObject{}, PortAPI}, {&PatchObject{}, PortAPI}, {&DeleteObject{}, PortAPI},
	{&CreateToken{}, PortAPI}, {&TokenCreated{}, ""}, {&RecordEvent{}, PortAPI},
	{&SetCgroup{}, PortHost}, {&RemoveCgroup{}, PortHost}, {&ListCgroups{}, PortHost},
	{&CgroupAboveLimit{}, ""},
	{&MakeKey{}, PortHost}, {&KeyMade{}, ""},
	{&MeasureNode{}, PortHost}, {&NodeMeasured{}, ""},
	{&CgroupsListed{}, ""}, {&ReadMachine{}, PortHost}, {&MachineRead{}, ""},
	{&Boot{}, ""}, {&ClockStepped{}, ""}, {&SystemOOM{}, ""}, {&MemoryAlert{}, ""},
	{&Shutdown{}, ""}, {&DelayShutdown{}, PortHost}, {&ShutdownDelayed{}, ""},
	{&PermitShutdown{}, PortHost}, {&MachineShutdown{}, ""}, {&ShutdownUnwatched{}, ""},
	{&PluginSocketsObserved{}, ""}, {&GetPluginInfo{}, PortPlugins}, {&PluginInfo{}, ""},
	{&NotifyPluginRegistration{}, PortPlugins},
	{&GetCSINodeInfo{}, PortCSI}, {&CSINodeInfo{}, ""}, {&StageVolume{}, PortCSI},
	{&UnstageVolume{}, PortCSI}, {&PublishVolume{}, PortCSI}, {&UnpublishVolume{}, PortCSI},
	{&ExpandVolume{}, PortCSI}, {&VolumeExpanded{}, ""}, {&GetVolumeStats{}, PortCSI},
	{&CSIVolumeStats{}, ""},
	{&RunISCSIAdm{}, PortSCSI}, {&ISCSIAdmRan{}, ""}, {&FindSCSIDisks{}, PortSCSI},
	{&SCSIDisksFound{}, ""}, {&ScanSCSIHost{}, PortSCSI}, {&ScanSCSIHosts{}, PortSCSI},
	{&RemoveSCSIDisks{}, PortSCSI},
	{&GetCredentials{}, PortCredentials}, {&CredentialsGot{}, ""},
	{&ReadDockerConfig{}, PortCredentials}, {&DockerConfigRead{}, ""},
	{&PodsRequest{}, ""}, {&PodsAnswer{}, PortRequests},
	{&RunningPodsRequest{}, ""}, {&RunningPodsAnswer{}, PortRequests},
	{&VolumeStatsRequest{}, ""}, {&VolumeStatsAnswer{}, PortRequests},
	{&ContainerRequest{}, ""}, {&ContainerAnswer{}, PortRequests},
	{&StateRequest{}, ""}, {&StateAnswer{}, PortRequests},
	{&HealthRequest{}, ""}, {&HealthAnswer{}, PortRequests},
	{&MetricsRequest{}, ""}, {&MetricsAnswer{}, PortRequests},
	{&Log{}, PortLog}, {&CancelOperation{}, PortLoop},
}

type bodyType struct {
	name string
	typ  reflect.Type // of the struct, not of the pointer
	port PortName
}

var bodyByType, bodyByName = registerBodies()

func registerBodies() (map[reflect.Type]bodyType, map[string]bodyType) {
	byType, byName := map[reflect.Type]bodyType{}, map[string]bodyType{}
	add := func(body any, port PortName) {
		t := reflect.TypeOf(body).Elem()
		b := bodyType{name: t.Name(), typ: t, port: port}
		if _, exists := byName[b.name]; exists {
			panic("world: two bodies are called " + b.name)
		}
		byType[t], byName[b.name] = b, b
	}
	for _, b := range jsonBodies {
		add(b.body, b.port)
	}
	for _, m := range criMessages {
		port := PortCRI
		if !strings.HasSuffix(reflect.TypeOf(m).Elem().Name(), "Request") {
			port = ""
		}
		add(m, port)
	}
	return byType, byName
}

func bodyTypeOf(body any) bodyType {
	t := reflect.TypeOf(body)
	if t == nil || t.Kind() != reflect.Pointer {
		panic(fmt.Sprintf("world: %T is not a body", body))
	}
	b, ok := bodyByType[t.Elem()]
	if !ok {
		panic(fmt.Sprintf("world: %T is not a registered body", body))
	}
	return b
}

// BodyName returns the name of a body's type, as in "StopContainerRequest", and the empty string
// for nil. It panics for a value that is not a registered body.
func BodyName(body any) string {
	if body == nil {
		return ""
	}
	return bodyTypeOf(body).name
}

// CallName returns the name of the operation that an effect requests, as in "StopContainer" or
// "ReadFiles".
func CallName(body any) string {
	return strings.TrimSuffix(BodyName(body), "Request")
}

// PortOf returns the port that carries out an effect with this body. It panics for a body that is
// not an effect.
func PortOf(body any) PortName {
	b := bodyTypeOf(body)
	if b.port == "" {
		panic("world: " + b.name + " is not an effect")
	}
	return b.port
}

// BodyNames returns the sorted names of all registered bodies.
func BodyNames() []string {
	names := make([]string, 0, len(bodyByName))
	for name := range bodyByName { //ordered: sorted below
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// AppendBody appends the canonical encoding of a body: deterministic protobuf for CRI messages,
// JSON for all others. Equal bodies have equal encodings in every process of one build.
func AppendBody(buf []byte, body any) ([]byte, error) {
	if body == nil {
		return buf, nil
	}
	if m, ok := body.(proto.Message); ok {
		return proto.MarshalOptions{Deterministic: true}.MarshalAppend(buf, m)
	}
	bodyTypeOf(body)
	data, err := json.Marshal(body)
	return append(buf, data...), err
}

// ParseBody decodes a body of the given name from the encoding that AppendBody wrote.
func ParseBody(name string, data []byte) (any, error) {
	if name == "" {
		return nil, nil
	}
	body := newBody(name)
	if body == nil {
		return nil, fmt.Errorf("unknown body %q", name)
	}
	if m, ok := body.(proto.Message); ok {
		return body, proto.Unmarshal(data, m)
	}
	return body, json.Unmarshal(data, body)
}

// newBody returns an empty body of the given name, and nil if no such body is registered.
func newBody(name string) any {
	b, ok := bodyByName[name]
	if !ok {
		return nil
	}
	return reflect.New(b.typ).Interface()
}
