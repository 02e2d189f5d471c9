#!/bin/sh
# Starts the cluster in a mount namespace of its own, runs pods, and checks what they print.
# PODS: how many start at once. MANIFESTS: the driver's manifests.
set -e
here=$PWD
work=$here/run
socket=/run/containerd/containerd.sock
gateway=10.99.0.1
failed=0
export PATH="$here/bin:$PATH" KUBECONFIG="$work/kubeconfig"

rm -rf "$work"
for name in kubelet larder larder-csi containerd etcd pki cni logs home/npm; do
    mkdir -p "$work/$name"
done
mount --make-rshared /
for name in kubelet larder larder-csi containerd; do
    mkdir -p "/var/lib/$name"
    mount --bind "$work/$name" "/var/lib/$name"
    mount --make-shared "/var/lib/$name"
done
mkdir -p /run/containerd
mount -t tmpfs tmpfs /run/containerd
address=$(hostname -I | cut -d ' ' -f 1)
{ cat /etc/hosts; echo "$address node-1"; } > "$work/hosts"
mount --bind "$work/hosts" /etc/hosts

started=
start() { # NAME COMMAND...
    name=$1
    shift
    "$@" > "$work/logs/$name" 2>&1 &
    started="$! $started"
}
end() {
    kubectl delete pods --all --all-namespaces --force --wait=false > /dev/null 2>&1 || true
    sleep 2
    # shellcheck disable=SC2086
    kill $started 2> /dev/null || true
    for container in $(runc --root /run/containerd/runc/k8s.io list -q 2> /dev/null); do
        runc --root /run/containerd/runc/k8s.io delete --force "$container" || true
    done
    pkill -f "containerd-shim.*$socket" || true
    ip link del larder-pods 2> /dev/null || true
    wait
}
trap end EXIT
until_true() { # SECONDS COMMAND...
    tries=$(($1 * 4))
    shift
    while ! "$@" > /dev/null 2>&1; do
        tries=$((tries - 1))
        if [ $tries = 0 ]; then
            echo "waited in vain for: $*; the logs are in $work/logs"
            exit 1
        fi
        sleep 0.25
    done
}
check() { # NAME EXPECTED FOUND
    if [ "$2" = "$3" ]; then
        echo "ok     $1"
    else
        printf 'WRONG  %s\nexpected: %s\nfound:    %s\n' "$1" "$2" "$3"
        failed=1
    fi
}

# ---- the cluster

cat > "$work/cni/10.conflist" << END
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "larder-pods", "isGateway": true,
 "ipam": {"type": "host-local", "dataDir": "$work/addresses", "ranges": [[{"subnet": "10.99.0.0/16", "gateway": "$gateway"}]]}}]}
END
cat > "$work/containerd.toml" << END
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  # A machine without CAP_SYS_RESOURCE may not lower it.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$work/cni"
END
start containerd containerd --config "$work/containerd.toml"
until_true 30 ctr version
for image in pause registrar larder-csi; do
    ctr --namespace k8s.io images import "$image.tar" > /dev/null
done
start etcd etcd --data-dir "$work/etcd" --listen-client-urls http://127.0.0.1:12379 \
    --advertise-client-urls http://127.0.0.1:12379 --listen-peer-urls http://127.0.0.1:12380 \
    --initial-advertise-peer-urls http://127.0.0.1:12380 --initial-cluster default=http://127.0.0.1:12380
openssl genrsa -out "$work/pki/key" 2048 2> /dev/null
echo token,admin,admin,system:masters > "$work/pki/tokens"
start apiserver kube-apiserver --etcd-servers=http://127.0.0.1:12379 --cert-dir="$work/pki" --secure-port=16443 \
    --bind-address=127.0.0.1 --service-account-key-file="$work/pki/key" \
    --service-account-signing-key-file="$work/pki/key" --service-account-issuer=https://cluster.test \
    --token-auth-file="$work/pki/tokens" --authorization-mode=AlwaysAllow \
    --service-cluster-ip-range=10.98.0.0/16 --allow-privileged
cat > "$KUBECONFIG" << END
apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {server: "https://127.0.0.1:16443", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: token}}]
contexts: [{name: context, context: {cluster: cluster, user: admin}}]
current-context: context
END
until_true 120 kubectl get --raw /readyz
start controllers kube-controller-manager --kubeconfig="$KUBECONFIG" --service-account-private-key-file="$work/pki/key"
start scheduler kube-scheduler --kubeconfig="$KUBECONFIG"
cat > "$work/kubelet.yaml" << END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
enforceNodeAllocatable: []
failSwapOn: false
failCgroupV1: false
containerRuntimeEndpoint: unix://$socket
evictionHard: {memory.available: "50Mi", nodefs.available: "1%", imagefs.available: "1%"}
maxPods: 250
registryPullQPS: 0
port: 20250
healthzPort: 0
END
start kubelet kubelet --config="$work/kubelet.yaml" --kubeconfig="$KUBECONFIG" --hostname-override=node-1 \
    --node-ip="$address" --root-dir=/var/lib/kubelet
node_is_ready() { kubectl get node node-1 | grep -q ' Ready'; }
until_true 120 node_is_ready
kubectl get node node-1 --output custom-columns=NODE:.metadata.name,KUBELET:.status.nodeInfo.kubeletVersion,RUNTIME:.status.nodeInfo.containerRuntimeVersion,KERNEL:.status.nodeInfo.kernelVersion

# ---- an image in the remote, and the driver

ip link add larder-pods type bridge
ip addr add $gateway/16 dev larder-pods
ip link set larder-pods up
start redis redis-server --bind $gateway 127.0.0.1 --port 16379 --protected-mode no --save ""
for number in $(seq 2000); do
    mkdir -p "$work/home/npm/$((number % 40))"
    echo "package $number" > "$work/home/npm/$((number % 40))/$number"
done
sleep 1
(
    cd "$work/home"
    export LARDER_DIR="$work/home/store" LARDER_REMOTE=redis://127.0.0.1:16379
    "$here/root/usr/local/bin/larder" image save --strict --key npm-web-main npm
)
mkdir "$work/apply"
cp -r "$MANIFESTS" "$work/apply/driver"
cat > "$work/apply/kustomization.yaml" << END
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: larder-csi
resources: [driver]
configMapGenerator: [{name: larder, behavior: merge, literals: ["LARDER_REMOTE=redis://$gateway:16379"]}]
images:
  - {name: larder-csi, newName: localhost/larder-csi, newTag: "1"}
  - {name: csi-node-driver-registrar, newName: localhost/registrar, newTag: "1"}
END
kubectl apply -k "$work/apply" > /dev/null
is_registered() { kubectl get csinode node-1 --output yaml | grep -q 'name: larder.csi'; }
until_true 120 is_registered
echo "ok     the manifests install the driver, and kubelet registers it"

# ---- pods

pod() { # NAME KEY OTHER-ATTRIBUTES COMMAND
    cat << END
---
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  containers:
    - name: job
      image: localhost/larder-csi:1
      command: [sh, -c, '$4']
      volumeMounts: [{name: npm, mountPath: /root/.npm}]
  volumes: [{name: npm, csi: {driver: larder.csi, volumeAttributes: {key: $2$3}}}]
END
}
phase() { kubectl get pod "$1" --output 'jsonpath={.status.phase}'; }
has_ended() { case $(phase "$1") in Succeeded | Failed) ;; *) return 1 ;; esac; }
printed() { # NAME: waits, and returns what it printed on one line
    until_true 60 has_ended "$1"
    kubectl logs "$1" | tr '\n' ' '
}
left() {
    echo "$(find /var/lib/larder-csi/volumes -mindepth 1 | wc -l) $(grep -c kubernetes.io~csi /proc/mounts) $(losetup -a | grep -c writes.img)"
}
pod reads npm-web-main "" 'find /root/.npm -type f | wc -l; cat /root/.npm/7/7; echo own > /root/.npm/own; cat /root/.npm/own' | kubectl apply -f - > /dev/null
check "a pod reads the image and writes" "2000 package 7 own " "$(printed reads)"
pod again npm-web-main "" 'ls /root/.npm | wc -l; test ! -e /root/.npm/own && echo unseen' | kubectl apply -f - > /dev/null
check "the next pod does not see that" "40 unseen " "$(printed again)"
pod absent no-such-key "" 'ls /root/.npm | wc -l; echo written > /root/.npm/x; cat /root/.npm/x' | kubectl apply -f - > /dev/null
check "without an image the volume is empty" "0 written " "$(printed absent)"
pod strict no-such-key ', strict: "true"' 'echo never' | kubectl apply -f - > /dev/null
has_event() { kubectl get events --field-selector involvedObject.name=strict,reason=FailedMount | grep -q 'there is no such image'; }
until_true 60 has_event
check "a strict pod does not start, and an event says why" Pending "$(phase strict)"
kubectl delete pods reads again absent strict > /dev/null
check "volumes, mounts and loop devices that are left" "0 0 0" "$(left)"

began=$(date +%s%N)
for number in $(seq "$PODS"); do
    pod "many-$number" npm-web-main "" 'ls /root/.npm | wc -l'
done | kubectl apply -f - > /dev/null
for number in $(seq "$PODS"); do
    until_true 300 has_ended "many-$number"
done
check "$PODS pods at once, ended after $((($(date +%s%N) - began) / 1000000)) ms" \
    "$PODS Succeeded" "$(kubectl get pods --output 'jsonpath={range .items[*]}{.status.phase}{"\n"}{end}' | sort | uniq -c | sed 's/^ *//')"
kubectl delete pods --all > /dev/null
check "volumes, mounts and loop devices that are left" "0 0 0" "$(left)"
exit $failed
