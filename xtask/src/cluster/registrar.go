// Registers a CSI driver with kubelet, as csi-node-driver-registrar does.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	reg "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type server struct {
	reg.UnimplementedRegistrationServer
	endpoint string
}

func (s server) GetInfo(context.Context, *reg.InfoRequest) (*reg.PluginInfo, error) {
	return &reg.PluginInfo{Type: reg.CSIPlugin, Name: "larder.csi", Endpoint: s.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

func (s server) NotifyRegistrationStatus(_ context.Context, st *reg.RegistrationStatus) (*reg.RegistrationStatusResponse, error) {
	log.Printf("registered: %v %v", st.PluginRegistered, st.Error)
	if !st.PluginRegistered {
		os.Exit(1)
	}
	return &reg.RegistrationStatusResponse{}, nil
}

func main() {
	flag.String("csi-address", "", "")
	path := flag.String("kubelet-registration-path", "", "")
	flag.Parse()
	socket := "/registration/larder.csi-reg.sock"
	os.Remove(socket)
	l, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	g := grpc.NewServer()
	reg.RegisterRegistrationServer(g, server{endpoint: *path})
	log.Fatal(g.Serve(l))
}
