package loopcsi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// version is the driver's own, which nothing depends on.
const version = "0.1.0"

// identity is the CSI identity service.
type identity struct {
	csi.UnimplementedIdentityServer
	options Options
}

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (
	*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.options.Name, VendorVersion: version}, nil
}

func (i *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (
	*csi.GetPluginCapabilitiesResponse, error) {
	types := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE}
	if i.options.Zone != "" {
		types = append(types, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	answer := &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		{Type: &csi.PluginCapability_VolumeExpansion_{
			VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
				Type: csi.PluginCapability_VolumeExpansion_ONLINE}}}}}
	for _, t := range types {
		answer.Capabilities = append(answer.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{
				Service: &csi.PluginCapability_Service{Type: t}}})
	}
	return answer, nil
}

func (*identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// registration is the service that a node agent calls when it finds the second socket.
type registration struct {
	registerapi.UnsafeRegistrationServer
	options Options
}

func (r *registration) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo,
	error) {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: r.options.Name,
		Endpoint: r.options.Endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r *registration) NotifyRegistrationStatus(_ context.Context,
	status *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if r.options.Registered != nil {
		r.options.Registered(status)
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
